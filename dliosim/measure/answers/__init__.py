"""The answer of a run about its storage: verdict, reasons, advice, and results of `expect` lines, from its figures."""
