"""The HTTP server: `ccrank serve`. Only this package imports FastAPI, uvicorn and prometheus-client."""
