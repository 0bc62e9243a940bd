//! Tests of the WebSocket gate over real sockets.
