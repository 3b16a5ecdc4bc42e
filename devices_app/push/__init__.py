"""Store push subscriptions, check their addresses, and send single pushes (D56)."""
