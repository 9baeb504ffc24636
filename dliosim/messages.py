"""Messages to standard error while the screen of `run --live` may stand on the user's terminal."""

from __future__ import annotations

from typing import Final

#: Erases what a terminal shows from the cursor on.
ERASE: Final = "\r\x1b[J"

#: Text before each message: `ERASE` where the screen of `--live` may stand below the cursor, else empty. On all ranks:
#: any of them may have the message that ends the job.
message_start: Final = [""]
