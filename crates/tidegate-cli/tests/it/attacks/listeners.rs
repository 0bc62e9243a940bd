//! Connections of one address leave room for those of others.
