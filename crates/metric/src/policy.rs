//! How a metric is kept.

use crate::{Aggregation, Methods, Retention, Table};

/// How a metric is kept: what `storage-schemas.conf` and `storage-aggregation.conf` say for its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// The stages.
    pub retention: Retention,
    /// How coarser stages are made; of several methods the first, which answers where a query names none of them.
    pub aggregation: Aggregation,
    /// All methods by which coarser stages are made, `aggregation` among them, where the rules have a list: each has tables of
    /// its own. Empty where there is one method.
    pub rollups: Methods,
    /// The part of a coarse slot that must be known, 0 to 1.
    pub x_files_factor: f64,
}

/// Carbon's defaults: a week of minutes, averaged, half of them known.
impl Default for Policy {
    fn default() -> Policy {
        Policy {
            retention: "10080*60s".parse().expect("a valid retention"),
            aggregation: Aggregation::Average,
            rollups: Methods::NONE,
            x_files_factor: 0.5,
        }
    }
}

impl Policy {
    /// With these methods: the first applies where a query names none. A list of one is that method.
    pub fn with_methods(self, methods: Methods) -> Policy {
        let aggregation = methods.first().unwrap_or(self.aggregation);
        let rollups = if methods.len() < 2 { Methods::NONE } else { methods };
        Policy { aggregation, rollups, ..self }
    }

    /// Whether both are the same, bit for bit.
    pub fn is_same(&self, other: &Policy) -> bool {
        self.retention == other.retention
            && self.aggregation == other.aggregation
            && self.rollups == other.rollups
            && self.x_files_factor.to_bits() == other.x_files_factor.to_bits()
    }

    /// The methods by which coarser stages are made, the first one first.
    pub fn methods(&self) -> Methods {
        if self.rollups.is_empty() { Methods::one(self.aggregation) } else { self.rollups }
    }

    /// The table of the stage with this index, of the first method.
    pub fn table(&self, index: usize) -> Table {
        let aggregated = index > 0;
        let rollup = (aggregated && !self.rollups.is_empty()).then_some(self.aggregation);
        Table { stage: self.retention.stages()[index], aggregated, rollup }
    }

    /// The tables of its coarse stages and methods, how many.
    pub fn coarse_tables(&self) -> usize {
        self.rollups.len().max(1) * (self.retention.stages().len() - 1)
    }

    /// This policy with one of its methods alone, in the tables of that rollup. For another method, with the first.
    pub fn of_rollup(&self, method: Aggregation) -> Policy {
        if self.rollups.is_empty() {
            return self.clone();
        }
        let aggregation = if self.rollups.contains(method) { method } else { self.aggregation };
        Policy { aggregation, rollups: Methods::one(aggregation), ..self.clone() }
    }

    /// Appends the policy as files keep it: xFilesFactor as a little-endian `f64`, then `method retention` as text; of
    /// several methods `method,method retention`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.x_files_factor.to_le_bytes());
        out.extend_from_slice(format!("{} {}", self.methods(), self.retention).as_bytes());
    }

    /// Reads what [`Policy::encode`] wrote. `None` where the bytes are something else.
    pub fn decode(bytes: &[u8]) -> Option<Policy> {
        let (x_files_factor, text) = bytes.split_first_chunk()?;
        let (methods, retention) = std::str::from_utf8(text).ok()?.split_once(' ')?;
        let policy = Policy {
            retention: retention.parse().ok()?,
            x_files_factor: f64::from_le_bytes(*x_files_factor),
            ..Policy::default()
        };
        Some(policy.with_methods(methods.parse().ok()?))
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
            rollups: Methods::NONE,
            x_files_factor: 0.1,
        };
        assert_eq!(Policy::decode(recorded).as_ref(), Some(&policy));
        let mut bytes = Vec::new();
        policy.encode(&mut bytes);
        assert_eq!(bytes, recorded);
    }

    #[test]
    fn other_bytes_are_not_a_policy() {
        for bytes in [
            &b""[..],
            b"\0\0\0\0\0\0\xe0",
            b"\0\0\0\0\0\0\xe0\x3fsum",
            b"\0\0\0\0\0\0\xe0\x3fmost 60*60s",
            b"\0\0\0\0\0\0\xe0\x3fsum,sum 60*60s",
        ] {
            assert_eq!(Policy::decode(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn each_method_of_a_list_has_tables_of_its_own() {
        let policy = Policy { retention: "60*60s:48*3600s".parse().unwrap(), ..Policy::default() };
        let list = policy.clone().with_methods("max,min".parse().unwrap());
        let mut bytes = Vec::new();
        list.encode(&mut bytes);
        assert!(bytes.ends_with(b"max,min 60*60s:48*3600s"));
        assert_eq!(Policy::decode(&bytes), Some(list.clone()));
        let table = |policy: &Policy, index| policy.table(index).to_string();
        assert_eq!(table(&policy, 1), "datapoints_48p_3600s_aggr");
        assert_eq!(table(&list, 0), table(&policy, 0));
        assert_eq!(table(&list, 1), "datapoints_48p_3600s_max");
        let of = |method| list.of_rollup(method);
        assert_eq!(table(&of(Aggregation::Min), 1), "datapoints_48p_3600s_min");
        assert_eq!(
            (of(Aggregation::Min).aggregation, of(Aggregation::Sum).aggregation),
            (Aggregation::Min, Aggregation::Max)
        );
        assert_eq!((policy.coarse_tables(), list.coarse_tables()), (1, 2));
        let one = policy.clone().with_methods("average".parse().unwrap());
        assert!(one.is_same(&policy) && !list.is_same(&Policy { aggregation: Aggregation::Max, ..policy.clone() }));
    }
}
