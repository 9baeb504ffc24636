"""How a model is split over ranks and files."""
