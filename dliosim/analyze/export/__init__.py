"""A trace in the forms of other programs: Perfetto, tables of CSV and Parquet, the text of Darshan's DXT."""
