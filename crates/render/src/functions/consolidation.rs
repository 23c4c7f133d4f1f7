//! How series are folded later on, where a reader or a function wants fewer values.

use crate::{
    Consolidation, Error, Literal,
    argument::{SeriesList, Value, parameters},
    function::{AskedRollup, Evaluate, Function},
    number::repr,
    scope::Scope,
};

const GROUP: &str = "Special";

const CONSOLIDATIONS: &[Literal] = &[
    Literal::Text("average"),
    Literal::Text("avg"),
    Literal::Text("avg_zero"),
    Literal::Text("first"),
    Literal::Text("last"),
    Literal::Text("max"),
    Literal::Text("min"),
    Literal::Text("sum"),
];

pub(super) const FUNCTIONS: &[Function] = &[
    Function::of::<ConsolidateBy>(
        "consolidateBy",
        GROUP,
        "How values are folded where the reader wants fewer. Of metrics whose rules have several aggregation methods, the \
         rollup of this method is read.",
    )
    .asks_for(AskedRollup::OfParameter("consolidationFunc", 1)),
    Function::of::<ConsolidateBy>("cumulative", GROUP, "As consolidateBy with 'sum'.")
        .preset("consolidationFunc", Literal::Text("sum"))
        .asks_for(AskedRollup::Of(Consolidation::Sum)),
    SET_X_FILES_FACTOR,
    SET_X_FILES_FACTOR.also("xFilesFactor"),
];

const SET_X_FILES_FACTOR: Function = Function::of::<SetXFilesFactor>(
    "setXFilesFactor",
    GROUP,
    "The share of values, 0 to 1, that must be known where several are folded into one; from here on, for later targets \
     as well.",
);

parameters! {
    /// consolidateBy.
    struct ConsolidateBy {
        series: SeriesList = "seriesList".required();
        func: String = "consolidationFunc".required().options(CONSOLIDATIONS);
    }
}

impl Evaluate for ConsolidateBy {
    fn evaluate(self, _: &mut Scope) -> Result<Value, Error> {
        let consolidation: Consolidation = self.func.parse().unwrap_or_default();
        let mut changed = Vec::with_capacity(self.series.0.len());
        for mut series in self.series.0 {
            series.consolidation = consolidation;
            series.tags.put("consolidateBy", self.func.as_str());
            let name = format!("consolidateBy({},\"{}\")", series.name, self.func);
            changed.push(series.called(name));
        }
        Ok(changed.into())
    }
}

parameters! {
    /// setXFilesFactor.
    struct SetXFilesFactor {
        series: SeriesList = "seriesList".required();
        factor: f64 = "xFilesFactor".required();
    }
}

impl Evaluate for SetXFilesFactor {
    fn evaluate(mut self, scope: &mut Scope) -> Result<Value, Error> {
        scope.x_files_factor = self.factor;
        for series in &mut self.series.0 {
            series.x_files_factor = self.factor;
            series.tags.put("xFilesFactor", repr(self.factor));
        }
        Ok(self.series.0.into())
    }
}
