"""numpy, imported when a name of it is first used: most patterns are checked without it, and it takes 0.1 s.

Modules that `dliosim check` imports write ``from dliosim.lazy_numpy import np``. A name costs one look into a
dictionary from its second use on, as in any module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
else:

    class _Numpy:
        def __getattr__(self, name: str) -> object:
            """Import numpy, and keep its name here."""
            import numpy

            value = getattr(numpy, name)
            setattr(self, name, value)
            return value

    np = _Numpy()

__all__ = ["np"]
