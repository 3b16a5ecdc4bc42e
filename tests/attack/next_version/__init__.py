"""An application that only a next version of the bridge has, with a migration that fails."""
