"""Name the handlers of client messages, and who makes their work trees."""

from collections.abc import Mapping
from typing import Final

from bridge_project.protocol import client_messages as c
from bridge_project.protocol import notify_messages as n
from bridge_project.protocol import push_messages as p
from bridge_project.protocol.base import ClientPayload
from files_app import handlers as repository
from files_app.git import work_trees
from sessions_app import work_trees as session_work_trees
from sessions_app.handlers import connection, found, history, push, session
from sessions_app.socket.connection import Handler

session_work_trees.make, session_work_trees.remove = work_trees.make, work_trees.remove

HANDLERS: Final[Mapping[type[ClientPayload], Handler]] = {
    c.Auth: connection.auth,
    c.HealthCheck: connection.health_check,
    c.AcknowledgeWarning: connection.acknowledge_warning,
    c.HeartbeatPing: connection.heartbeat_ping,
    c.NotificationAck: connection.notification_ack,
    c.PresenceSet: connection.presence_set,
    c.SessionStart: session.session_start,
    c.SessionEnd: session.session_end,
    c.HistoryList: history.history_list,
    c.SessionSearch: found.session_search,
    c.SessionEdit: found.session_edit,
    c.SessionInterrupt: session.session_interrupt,
    c.SessionSet: session.session_set,
    c.Message: session.message,
    c.MessageWithdraw: session.message_withdraw,
    c.ApprovalResponse: session.approval_response,
    c.RuleRemove: session.rule_remove,
    c.ReplayRequest: session.replay_request,
    c.FileList: repository.file_list,
    c.FileRead: repository.file_read,
    c.FileSearch: repository.file_search,
    c.GitStatusRequest: repository.git_status_request,
    c.GitDiff: repository.git_diff,
    c.GitCommit: repository.git_commit,
    c.GitPush: repository.git_push,
    n.NotifySet: push.notify_set,
    p.PushSubscribe: push.push_subscribe,
    p.PushUnsubscribe: push.push_unsubscribe,
    p.PushTest: push.push_test,
}
