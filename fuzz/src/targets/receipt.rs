//! Receipts, which callers keep and send back.

use tidegate_core::Receipt;

/// A receipt that is read is written as the same bytes: there is one spelling of each.
pub(super) fn receipt(input: &[u8]) {
    if let Ok(receipt) = Receipt::from_bytes(input) {
        assert_eq!(receipt.to_bytes(), input, "a receipt has another spelling");
        assert!(!receipt.stamps().is_empty(), "a receipt for nothing");
    }
}
