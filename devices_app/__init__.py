"""Store paired devices and their tokens; serve pairing, push and the web client."""
