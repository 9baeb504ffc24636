"""A pattern out of a trace: what an application read, computed and saved, as the language says it."""
