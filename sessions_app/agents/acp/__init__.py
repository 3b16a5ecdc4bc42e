"""Run agents that speak the Agent Client Protocol (D41, D59)."""
