"""The core: pure values and functions that decide what a saga does. Read it in this order.

``saga`` (what is known) · ``events`` (what is reported) · ``entries`` (what is concluded) ·
``machine`` (the essay, the table, ``decide`` and ``apply``) · ``forward`` with ``actions``, and
``backward`` (the two directions) · ``evidence`` and ``verbs`` (what tools and people say) ·
``outcome`` (what an answer means).

The rest serves these: ``turn`` (one decision under way), ``attempts`` and ``retry``, ``verifying``
and ``settling`` (asking what became of a call), ``residue``, ``plan`` and ``undoing`` (what is
left, and what would be done about it), ``definition``, ``graph`` and ``language``, ``rendering``,
``expressions`` and ``secrets``, ``callbacks``, ``identity``.

No clock, no randomness, no input or output. Modules are imported by name; each is a subject.
"""
