//! Rate limits at the doors of HTTP and gRPC services.
