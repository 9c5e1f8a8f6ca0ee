"""Amends: runs actions on the outside world as sagas, and undoes what cannot be finished."""
