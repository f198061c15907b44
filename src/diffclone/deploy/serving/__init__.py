"""Parts of the HTTP server: connections, access, bodies, batches of policy calls, metrics and the OpenAPI document."""
