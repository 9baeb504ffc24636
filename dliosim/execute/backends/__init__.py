"""One module an access method: how bytes are read and written."""
