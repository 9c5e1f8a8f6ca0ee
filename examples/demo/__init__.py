"""The demo: three trips in a terminal, one of them through a kill -9, judged by the tools' ledger."""
