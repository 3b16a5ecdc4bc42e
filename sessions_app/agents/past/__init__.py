"""Find the sessions that agents keep in stores of their own (D67)."""
