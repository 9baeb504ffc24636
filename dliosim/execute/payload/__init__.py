"""The bytes of samples and shards."""
