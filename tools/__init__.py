"""Programs for the people who work on Dueline. Not part of the package."""
