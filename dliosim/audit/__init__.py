"""Fitness of results to be published: rules over saved results, the text of a set-up section, bundles of results."""
