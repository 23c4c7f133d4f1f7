//! The policy by which a metric of shared tables is read.
//!
//! Other programs write the tables too, and one that never looks at xFilesFactor may have stored another one than was
//! configured (BigGraphite stores 0 as 0.5). It only matters for reading, so the node that reads has the last word.

use std::sync::Arc;

use metric::{MetricId, Policy};

use crate::{policies::XFilesFactors, registry::Registry};

impl Registry {
    /// Rules whose xFilesFactor holds for every metric that is read, whatever its policy says; `None` without any.
    pub fn set_x_files_factors(&self, rules: Option<XFilesFactors>) {
        *self.x_files_factors.write() = rules;
    }

    /// The xFilesFactor that the rules give a metric.
    pub fn ruled_x_files_factor(&self, metric: MetricId) -> Option<f64> {
        let rules = self.x_files_factors.read().clone()?;
        rules(self.read().name(metric))
    }

    /// The policy of a name as queries see it; `None` for an unknown name.
    pub fn read_policy(&self, name: &str) -> Option<Arc<Policy>> {
        let policy = {
            let names = self.read();
            names.policy_id(names.find(self.hash(name.as_bytes()), name.as_bytes())?)
        };
        let policy = self.policy(policy);
        let rules = self.x_files_factors.read().clone();
        Some(match rules.and_then(|rules| rules(name)) {
            Some(x_files_factor) if x_files_factor != policy.x_files_factor => {
                Arc::new(Policy { x_files_factor, ..(*policy).clone() })
            }
            _ => policy,
        })
    }
}
