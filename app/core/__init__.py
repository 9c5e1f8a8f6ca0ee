"""The core: pure values and functions that decide what a saga does. Read it in this order.

``saga`` (what is known) · ``events`` (what is reported) · ``entries`` (what is concluded) ·
``machine`` (the essay, the table, ``decide`` and ``apply``) · ``forward`` and ``backward`` (the two
directions) · ``outcome`` (what a tool's answer means). The rest serves these: ``attempts`` and
``retry``, ``rendering`` and ``expressions``, ``document`` and ``definition``, ``identity``.

No clock, no randomness, no input or output. Modules are imported by name; each is a subject.
"""
