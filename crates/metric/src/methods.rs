//! Several aggregation methods of one policy, in their order.

use std::{fmt, str::FromStr};

use crate::{Aggregation, UnknownAggregation};

/// A list of methods, each once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Methods {
    // Invariant: none twice, and `None` behind all others.
    list: [Option<Aggregation>; Aggregation::ALL.len()],
}

/// Why a text is not a list of methods.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MethodsError {
    /// A method that carbon does not know.
    #[error(transparent)]
    Unknown(#[from] UnknownAggregation),
    /// The same method twice.
    #[error("the method {0} is there twice; each may be there once")]
    Twice(Aggregation),
}

impl Methods {
    /// No method.
    pub const NONE: Methods = Methods { list: [None; Aggregation::ALL.len()] };

    /// A single one.
    pub fn one(method: Aggregation) -> Methods {
        let mut one = Methods::NONE;
        one.list[0] = Some(method);
        one
    }

    /// Adds a method behind the others, unless it is there. Returns whether it was added.
    pub fn add(&mut self, method: Aggregation) -> bool {
        if self.contains(method) {
            return false;
        }
        // Each method is there once, so that one more always has a place.
        if let Some(place) = self.list.iter_mut().find(|place| place.is_none()) {
            *place = Some(method);
        }
        true
    }

    /// The methods in their order.
    pub fn iter(&self) -> impl Iterator<Item = Aggregation> + '_ {
        self.list.iter().map_while(|method| *method)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list[0].is_none()
    }

    /// The first of them.
    pub fn first(&self) -> Option<Aggregation> {
        self.list[0]
    }

    /// Whether a method is in the list.
    pub fn contains(&self, method: Aggregation) -> bool {
        self.list.contains(&Some(method))
    }
}

impl IntoIterator for Methods {
    type Item = Aggregation;
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Option<Aggregation>, 8>>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter().flatten()
    }
}

/// `average,max`.
impl fmt::Display for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, method) in self.iter().enumerate() {
            write!(f, "{}{method}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// Reads a list as rule files have it: names between commas, with spaces around them.
impl FromStr for Methods {
    type Err = MethodsError;

    fn from_str(text: &str) -> Result<Methods, MethodsError> {
        let mut methods = Methods::NONE;
        for name in text.split(',') {
            let method = name.trim().parse()?;
            if !methods.add(method) {
                return Err(MethodsError::Twice(method));
            }
        }
        Ok(methods)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_its_order_and_has_each_method_once() {
        let list: Methods = "avg, max,min".parse().unwrap();
        assert_eq!(
            (list.to_string(), list.len(), list.first()),
            ("average,max,min".to_owned(), 3, Some(Aggregation::Average))
        );
        assert!(list.contains(Aggregation::Min) && !list.contains(Aggregation::Sum));
        assert_eq!("avg,average".parse::<Methods>(), Err(MethodsError::Twice(Aggregation::Average)));
        for unknown in ["avg,,max", "", "avg,most"] {
            assert!(matches!(unknown.parse::<Methods>(), Err(MethodsError::Unknown(_))), "{unknown}");
        }
        let all = Aggregation::ALL.map(Aggregation::name).join(",");
        assert_eq!(all.parse::<Methods>().unwrap().iter().collect::<Vec<_>>(), Aggregation::ALL);
    }
}
