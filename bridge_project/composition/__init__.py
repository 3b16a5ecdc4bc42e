"""Put the parts together: what a serving bridge consists of, and what it says of itself."""
