//! Rate limits for messages on WebSockets.
