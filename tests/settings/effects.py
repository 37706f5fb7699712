"""For each setting, the test that shows what it does. A setting without one should not exist."""

from typing import Final

_HERE: Final = "settings/test_effects.py"
_SHARED: Final = (
    "upkeep/test_object_workspaces.py::test_processes_that_share_a_ledger_share_its_workspaces"
)
_BUCKETS: Final = "adapters/test_buckets.py"
_STORED: Final = "configs/test_stored_settings.py"
_PLAN: Final = f"{_HERE}::test_a_job_begins_with_what_is_set"
_REFUSED: Final = f"{_HERE}::test_a_request_is_refused_by_what_is_set"
_TOKEN: Final = f"{_HERE}::test_a_token_is_read_as_is_set"
_LIMITS: Final = "api/test_backpressure.py"
_NATS_USERS: Final = "adapters/test_nats_users.py::test_a_process_is_let_in"
_SERVICE_BUS: Final = (
    "adapters/test_service_bus_provision.py"
    "::test_the_settings_reach_the_broker_and_later_changes_too"
)
_NATS_TLS: Final = (
    "adapters/test_nats_tls.py::test_a_server_that_asks_for_a_certificate_is_served_over_tls"
)
_SLOW: Final = "security/test_slow_clients.py::test_lucius_up_has_the_guard_and_its_settings"
_CONNECTIONS: Final = (
    "security/test_connections.py::test_lucius_up_has_the_limits_and_their_settings"
)

_ANSWERS: Final = (
    "services/test_endpoint.py"
    "::test_sis_has_the_endpoint_answer_from_the_passages_and_never_logs_its_key"
)

_TEMPORAL_TLS: Final = (
    "temporal/test_tls.py::test_a_server_that_asks_for_a_certificate_is_served_over_tls"
)
_TEMPORAL: Final = "temporal/test_one_process.py::test_a_job_of_three_steps_succeeds"
AZURE_TABLES: Final = "adapters/test_azure_tables.py::test_the_settings_name_the_tables_that_exist"
_CONSOLE: Final = "console/test_signing_in.py"
EFFECTS: Final = {
    "CONSOLE_URL": "console/test_hosting.py::test_the_console_lives_under_a_path",
    "CONSOLE_SESSION_SECONDS": f"{_CONSOLE}::test_a_session_ends",
    "CONSOLE_CLIENT_ID": f"{_CONSOLE}::test_people_sign_in_at_their_issuer",
    "CONSOLE_CLIENT_SECRET": f"{_CONSOLE}::test_people_sign_in_at_their_issuer",
    "CONSOLE_SCOPES": f"{_CONSOLE}::test_people_sign_in_at_their_issuer",
    "SYSTEM": "upkeep/test_retention.py::test_another_system_has_workspaces_of_its_own",
    "WORKSPACE_FILES": "cli/test_job_files.py::test_outputs_are_listed_and_copied",
    "DATA_DIR": "security/test_private_files.py"
    "::test_keys_made_first_of_all_are_in_a_private_directory",
    "PUBLIC_URL": "security/test_listening.py::test_with_a_public_url_it_listens_everywhere",
    "LOG_LEVEL": f"{_HERE}::test_less_severe_lines_are_not_logged",
    "LOG_FORMAT": "observability/test_logs.py::test_text_on_a_terminal_and_json_elsewhere",
    "TRACES": "observability/test_otlp.py"
    "::test_spans_are_printed_where_so_configured_and_nowhere_by_default",
    "OTLP_ENDPOINT": "observability/test_otlp.py"
    "::test_a_span_arrives_with_its_ids_its_parent_and_the_name_of_the_installation",
    "URL": "client/test_client.py::test_the_environment_names_the_server_and_the_key",
    "TENANT": "cli/test_commands.py::test_the_environment_names_the_tenant",
    "API_KEY": "client/test_client.py::test_the_environment_names_the_server_and_the_key",
    "CONFIG_SOURCE": f"{_STORED}::test_a_runtime_takes_its_protocols_from_app_configuration",
    "APPCONFIG_CONNECTION": f"{_STORED}::test_a_stored_setting_counts_where_nobody_says_otherwise",
    "APPCONFIG_LABEL": f"{_STORED}::test_a_label_chooses_among_the_stored",
    "ANSWER_URL": _ANSWERS,
    "ANSWER_MODEL": _ANSWERS,
    "ANSWER_KEY": _ANSWERS,
    "BLOB_CONNECTION": "upkeep/test_object_workspaces.py"
    "::test_a_job_is_verified_and_pruned_with_its_workspace",
    "S3_ENDPOINT": f"{_BUCKETS}::test_the_setting_goes_before_the_environment",
    "S3_REGION": f"{_BUCKETS}::test_a_region_is_set_or_that_of_the_environment",
    "GCS_ENDPOINT": f"{_BUCKETS}::test_an_object_that_does_not_exist_is_none",
    "MAX_HTTPS_BYTES": "security/test_https_documents.py"
    "::test_a_named_place_is_read_and_an_account_of_azure_beside_it_is_its_own",
    "STORES_OVER_HTTP": f"{_BUCKETS}"
    "::test_documents_cross_a_network_in_the_clear_only_where_someone_has_said_so",
    "PROTOCOLS": "settings/test_loading.py::test_packaged_protocols_may_be_joined_by_others",
    "CONFIG_REFRESH_SECONDS": "engine/test_new_protocol.py"
    "::test_a_protocol_with_a_new_step_type_is_a_file_and_runs",
    "TABLE_CONNECTION": AZURE_TABLES,
    "LEDGER_TABLE": AZURE_TABLES,
    "JOBS_TABLE": AZURE_TABLES,
    "STEPS_TABLE": AZURE_TABLES,
    "OUTBOX_TABLE": AZURE_TABLES,
    "EVENTS_TABLE": AZURE_TABLES,
    "FORMER_TOPOLOGIES": "engine/test_topologies.py"
    "::test_topics_of_former_topologies_are_listened_on_where_so_configured",
    "LANE_LEASE_SECONDS": "settings/test_shared.py::test_the_settings_of_a_shared_ledger",
    "TABLE_LAG_SECONDS": "adapters/test_azure_split.py"
    "::test_a_lag_is_set_or_each_save_is_copied_at_once",
    "HOT_TENANTS": "adapters/test_azure_split.py"
    "::test_the_settings_open_it_and_name_the_hot_tenants",
    "IDEMPOTENCY_TABLE": AZURE_TABLES,
    "JOB_INDEX_TABLE": AZURE_TABLES,
    "INFLIGHT_TABLE": AZURE_TABLES,
    "SERVICE_RECORDS_TABLE": "adapters/test_table_records.py"
    "::test_the_setting_puts_the_records_into_a_table",
    "STORAGE_BACKEND": "faults/test_kill.py"
    "::test_fm_022_reproduce_without_a_durable_ledger_an_accepted_job_is_lost",
    "RETENTION": "upkeep/test_upkeep.py::test_a_server_deletes_what_it_keeps_no_longer",
    "WORKSPACE_URL": "upkeep/test_building.py::test_a_job_runs_in_the_workspace_that_is_configured",
    "BUS_BACKEND": "adapters/test_nats_processes.py"
    "::test_services_of_their_own_processes_work_over_the_broker",
    "BUS_PROVISION": f"{_HERE}::test_a_process_creates_topics_only_where_it_may",
    "NATS_URL": "adapters/test_nats_processes.py"
    "::test_services_of_their_own_processes_work_over_the_broker",
    "NATS_CA": _NATS_TLS,
    "NATS_CERTIFICATE": _NATS_TLS,
    "NATS_PRIVATE_KEY_PATH": _NATS_TLS,
    "NATS_CREDENTIALS": f"{_NATS_USERS}_with_a_credentials_file",
    "NATS_USER": f"{_NATS_USERS}_with_a_password",
    "NATS_PASSWORD": f"{_NATS_USERS}_with_a_password",
    "NATS_TOKEN": f"{_NATS_USERS}_with_a_token",
    "SERVICEBUS_CONNECTION": _SERVICE_BUS,
    "SERVICEBUS_LOCK_SECONDS": _SERVICE_BUS,
    "SERVICEBUS_MAX_DELIVERIES": _SERVICE_BUS,
    "SERVICEBUS_DUPLICATE_WINDOW_SECONDS": _SERVICE_BUS,
    "SERVICEBUS_EXPIRY": _SERVICE_BUS,
    "SERVICEBUS_PREFIX": "adapters/test_two_deployments.py"
    "::test_topics_with_a_prefix_carry_messages_under_their_plain_names",
    "SERVICEBUS_SESSIONS": "adapters/test_service_bus_sessions.py"
    "::test_the_setting_gives_sessions_to_services_alone",
    "LANE_TOPOLOGY": "api/test_pulling.py::test_both_modes_are_pulled_in_every_topology",
    "ROUTING_DELIMITER": _PLAN,
    "TEMPORAL_ENABLED": _TEMPORAL,
    "TEMPORAL_ADDRESS": _TEMPORAL,
    "TEMPORAL_TASK_QUEUE": _TEMPORAL,
    "TEMPORAL_NAMESPACE": "temporal/test_one_process.py"
    "::test_a_namespace_that_is_missing_is_named_by_readyz",
    "TEMPORAL_CA": _TEMPORAL_TLS,
    "TEMPORAL_CERTIFICATE": _TEMPORAL_TLS,
    "TEMPORAL_PRIVATE_KEY_PATH": _TEMPORAL_TLS,
    "TEMPORAL_TLS": "temporal/test_one_process.py::test_tls_and_key_reach_the_connection",
    "TEMPORAL_API_KEY": "temporal/test_one_process.py::test_tls_and_key_reach_the_connection",
    "TEMPORAL_WORKFLOW_EXECUTION_TIMEOUT": "temporal/test_one_process.py"
    "::test_a_job_whose_workflow_runs_too_long_fails_with_a_code_of_its_own",
    "STEP_RESULT_TIMEOUT_SECONDS": "temporal/test_invoker_api.py"
    "::test_the_lease_of_a_step_is_the_result_timeout",
    "INVOKER_URL": "temporal/test_invoker_api.py"
    "::test_invokers_are_called_in_turn_and_one_that_is_away_is_passed_over",
    "INVOKER_SECRET": "temporal/test_invoker_api.py"
    "::test_without_a_secret_it_listens_on_loopback_only",
    "MAX_ATTEMPTS": _PLAN,
    "ACK_TIMEOUT_SECONDS": "api/test_pulling.py"
    "::test_a_worker_that_vanishes_is_covered_by_the_ack_clock",
    "LEASE_SECONDS": _PLAN,
    "DISPATCH_BACKOFF_SECONDS": _PLAN,
    "ACK_BACKOFF_SECONDS": _PLAN,
    "EXECUTION_BACKOFF_SECONDS": _PLAN,
    "OUTBOX_RETRY_INTERVAL": "upkeep/test_building.py"
    "::test_the_reconciler_looks_at_what_is_due_as_often_as_it_is_told",
    "JOB_SLA_SECONDS": _PLAN,
    "PAUSE_SLA_SECONDS": _PLAN,
    "SLA_ACTION": _PLAN,
    "DRAIN_SECONDS": "cli/test_ending.py"
    "::test_a_step_that_ignores_its_cancellation_does_not_keep_the_server",
    "LOOP_BLOCKED_SECONDS": "observability/test_blocked_loop.py"
    "::test_a_service_that_blocks_is_named_meanwhile_and_afterwards",
    "MAX_INFLIGHT": f"{_LIMITS}::test_a_slot_is_freed_exactly_when_its_job_ends",
    "MAX_INFLIGHT_PER_TENANT": f"{_LIMITS}::test_a_limit_of_one_tenant_does_not_touch_another",
    "MAX_INFLIGHT_PER_LANE": f"{_LIMITS}::test_a_limit_of_a_lane_counts_each_mode_apart",
    "MAX_INFLIGHT_PER_LANE_BURST": f"{_LIMITS}::test_burst_may_have_a_limit_of_its_own",
    "JOB_CACHE_BYTES": "engine/test_cache.py::test_its_size_is_a_setting",
    "MAX_PAYLOAD_BYTES": _REFUSED,
    "MAX_BODY_BYTES": f"{_HERE}::test_a_body_is_as_large_as_is_set_at_most",
    "REQUEST_HEAD_SECONDS": _SLOW,
    "REQUEST_BODY_SECONDS": _SLOW,
    "UNREAD_ANSWER_SECONDS": "security/test_unread_answers.py"
    "::test_lucius_up_has_the_guard_and_its_setting",
    "MAX_CONNECTIONS": _CONNECTIONS,
    "MAX_CONNECTIONS_PER_ADDRESS": _CONNECTIONS,
    "MAX_WAITING_PER_CALLER": "security/test_waiting.py"
    "::test_lucius_up_has_the_limit_and_its_setting",
    "RATE_LIMIT_PER_SECOND": "security/test_limits.py"
    "::test_the_limit_is_a_setting_and_off_by_default",
    "WORKER_RATE_LIMIT_PER_SECOND": "security/test_worker_limits.py"
    "::test_workers_may_send_twenty_times_as_much_unless_told",
    "AUTH": "security/test_other_users.py::test_with_keys_another_user_is_asked_for_one",
    "JWT_ISSUER": _TOKEN,
    "JWT_AUDIENCE": _TOKEN,
    "JWT_JWKS_URL": _TOKEN,
    "JWT_ALGORITHMS": _TOKEN,
    "JWT_ROLES_CLAIM": _TOKEN,
    "JWT_TENANTS_CLAIM": _TOKEN,
    "REQUIRE_REPLY_TOKEN": "security/test_callback_tokens.py"
    "::test_a_bus_reply_without_token_is_set_aside_where_one_is_needed",
    "CALLBACK_KEYS": "security/test_callback_tokens.py::test_keys_are_rotated_while_work_is_out",
    "REFERENCE_SCHEMES": _REFUSED,
    "INPUT_ROOTS": f"{_HERE}::test_files_are_read_and_written_where_is_set_and_nowhere_else",
    "OUTPUT_ROOTS": f"{_HERE}::test_files_are_read_and_written_where_is_set_and_nowhere_else",
    "REFERENCE_HOSTS": _REFUSED,
    "ALLOW_PAYLOAD_SECRETS": "ingress/test_payload_secrets.py"
    "::test_the_setting_names_the_fields_that_may",
    "WEBHOOK_SCHEMES": _REFUSED,
    "WEBHOOK_HOSTS": _REFUSED,
    "WEBHOOK_SECRET": f"{_HERE}::test_the_secret_of_a_tenant_follows_from_the_one_that_is_set",
}
"""By variable, without its prefix: a test, below the folder of all tests."""
