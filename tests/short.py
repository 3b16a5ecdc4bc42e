"""Limits that tests live through, in seconds, shorter than the real ones."""

SHORT = {
    "AUTH_WAIT_SECONDS": 5,
    "PONG_WAIT_SECONDS": 4,
    "LIVENESS_SECONDS": 12,
    "SLOW_SOCKET_SECONDS": 8,
    "LEASE_SECONDS": 8,
    "LEASE_RENEWAL_SECONDS": 1,
    "AGENT_START_SECONDS": 20,
    "AGENT_VERSION_SECONDS": 1,
    "CIRCUIT_BREAKER_PROBE_SECONDS": 3,
    "TURN_SILENCE_SECONDS": 10,
    "AGENT_IDLE_SECONDS": 20,
    "PUSH_PROOF_SECONDS": 12,
    "PUSH_RETRY_SECONDS": 1,
    "HELD_CHECK_SECONDS": 0.5,
    "DATA_FILES_POLL_SECONDS": 0.2,
    "QUIET_SECONDS": 3,
    "TURN_END_SECONDS": 1,
    "TERMINAL_CHECK_SECONDS": 0.1,
    "PROCESS_CHECK_SECONDS": 0.3,
    "HOOK_OUTCOME_SECONDS": 1.5,
    "AWAY_SECONDS": 4,
    "IDLE_SESSION_FOLD_SECONDS": 2,
    "PROGRAM_END_SECONDS": 2,
    "TRANSCRIPT_SECONDS": 0.2,
    "ACP_LIST_SECONDS": 3,
    "ACP_LIST_KEPT_SECONDS": 0,
    "ACP_LIST_AGAIN_SECONDS": 0,
    "GIT_COMMIT_SECONDS": 6,
    "GIT_PUSH_SECONDS": 6,
    "TOOL_TIMEOUT_BASH_SECONDS": 5,
    "PUSH_ANSWER_SECONDS": 3,
    "REQUEST_SECONDS": 3,
    "STOP_SECONDS": 1,
    "LINGER_SECONDS": 1,
    "CERTIFICATE_CHECK_SECONDS": 0.1,
}


def short(*names: str) -> dict[str, str]:
    """The settings of a bridge that has these of them; what waits for others has its time."""
    return {"DJANGO_SETTINGS_MODULE": "tests.short_settings", "TESTS_SHORT": " ".join(names)}
