//! Every case of the suite on the plain store.

use crate::plain_store::PlainStore;

tidegate_testkit::conformance_tests!(|| async { PlainStore::new() });
