//! Tests of the HTTP and gRPC doors over real sockets.
