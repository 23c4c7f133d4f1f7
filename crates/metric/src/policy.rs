//! How a metric is kept.

use crate::{Aggregation, Retention};

/// How a metric is kept: what `storage-schemas.conf` and `storage-aggregation.conf` say for its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// The stages.
    pub retention: Retention,
    /// How coarser stages are made.
    pub aggregation: Aggregation,
    /// The part of a coarse slot that must be known, 0 to 1.
    pub x_files_factor: f64,
}

/// Carbon's defaults: a week of minutes, averaged, half of them known.
impl Default for Policy {
    fn default() -> Policy {
        Policy {
            retention: "10080*60s".parse().expect("a valid retention"),
            aggregation: Aggregation::Average,
            x_files_factor: 0.5,
        }
    }
}

impl Policy {
    /// Whether both are the same, bit for bit.
    pub fn is_same(&self, other: &Policy) -> bool {
        self.retention == other.retention
            && self.aggregation == other.aggregation
            && self.x_files_factor.to_bits() == other.x_files_factor.to_bits()
    }

    /// Appends the policy as files keep it: xFilesFactor as a little-endian `f64`, then `method retention` as text.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.x_files_factor.to_le_bytes());
        out.extend_from_slice(format!("{} {}", self.aggregation, self.retention).as_bytes());
    }

    /// Reads what [`Policy::encode`] wrote. `None` where the bytes are something else.
    pub fn decode(bytes: &[u8]) -> Option<Policy> {
        let (x_files_factor, text) = bytes.split_first_chunk()?;
        let (aggregation, retention) = std::str::from_utf8(text).ok()?.split_once(' ')?;
        Some(Policy {
            retention: retention.parse().ok()?,
            aggregation: aggregation.parse().ok()?,
            x_files_factor: f64::from_le_bytes(*x_files_factor),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_bytes_are_read_and_written_again() {
        // The form of the journal and of the embedded metrics table since each had an encoder of its own.
        let recorded = b"\x9a\x99\x99\x99\x99\x99\xb9\x3favg_zero 11520*60s:720*3600s:730*86400s";
        let policy = Policy {
            retention: "11520*60s:720*3600s:730*86400s".parse().unwrap(),
            aggregation: Aggregation::AvgZero,
            x_files_factor: 0.1,
        };
        assert_eq!(Policy::decode(recorded).as_ref(), Some(&policy));
        let mut bytes = Vec::new();
        policy.encode(&mut bytes);
        assert_eq!(bytes, recorded);
    }

    #[test]
    fn other_bytes_are_not_a_policy() {
        for bytes in [&b""[..], b"\0\0\0\0\0\0\xe0", b"\0\0\0\0\0\0\xe0\x3fsum", b"\0\0\0\0\0\0\xe0\x3fmost 60*60s"] {
            assert_eq!(Policy::decode(bytes), None, "{bytes:?}");
        }
    }
}
