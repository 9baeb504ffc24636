"""The answer of a run about its storage, from its figures: verdict, reasons, advice, results of `expect` lines."""
