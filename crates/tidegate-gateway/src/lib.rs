//! A reverse proxy to LLM providers that holds calls until they fit.
