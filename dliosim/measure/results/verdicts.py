"""Verdicts on the storage of a loop: what `Answer.verdict` may be."""

FEEDS = "feeds"
STARVES = "does not feed"
TOO_CLOSE = "too close to say"
CANNOT_SAY = "cannot say"
NOT_ASKED = "not asked"
NO_STORAGE = "not a storage result"
