"""What every other part may use: settings, limits, errors, the database, logging, paths."""
