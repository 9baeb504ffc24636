"""Everything is said in setup.cfg, but for one step of building: the parser's tables, made by the lark at hand."""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithTables(build_py):
    """Make dliosim/language/syntax/tables.json again: tables of another lark than the installed one are not used."""

    def run(self) -> None:
        """Copy the packages, then put fresh tables in the place of the copied ones."""
        super().run()
        if self.editable_mode:
            return
        sys.path.insert(0, str(Path(__file__).parent))
        from dliosim.language.syntax.build import build_tables, grammar_text

        place = Path(self.build_lib) / "dliosim" / "language" / "syntax" / "tables.json"
        place.write_text(build_tables(grammar_text()), encoding="utf-8")


setup(cmdclass={"build_py": BuildWithTables})
