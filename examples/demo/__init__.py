"""The demo: three trips in a terminal, one through a kill -9, judged by the tools' own ledger."""
