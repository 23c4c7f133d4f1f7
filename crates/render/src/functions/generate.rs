//! Series made of the time alone.

use crate::{
    Error, Literal, Series,
    argument::{Real, Value, parameters},
    function::{Evaluate, Function},
    scope::Scope,
};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::of::<Identity>("identity", "Calculate", "At each minute, the time itself: Unix seconds."),
    RANDOM_WALK.also("randomWalk"),
    RANDOM_WALK,
    SIN.also("sin"),
    SIN,
    TIME.also("time"),
    TIME,
];

const RANDOM_WALK: Function = Function::of::<RandomWalk>(
    "randomWalkFunction",
    "Special",
    "A line that begins at zero and goes up or down by chance, at most by half each step. For trying things out.",
);

const SIN: Function = Function::of::<Sin>(
    "sinFunction",
    "Transform",
    "The sine of the time in seconds, times an amplitude, each step. For trying things out.",
);

const TIME: Function =
    Function::of::<Time>("timeFunction", "Transform", "At each step, the time itself: Unix seconds.");

const MINUTE: Literal = Literal::Integer(60);

/// The times of the span, each a step from the one before. They begin where the span does, and its end is not
/// among them.
fn times(step: i64, scope: &mut Scope) -> Result<Vec<i64>, Error> {
    if step < 1 {
        return Err(scope.reject(format!("step must be at least 1, got {step}")));
    }
    let (start, end) = (scope.span().from, scope.span().until);
    let count = usize::try_from(end.saturating_sub(start)).unwrap_or(0).div_ceil(step as usize);
    scope.spend(count)?;
    Ok((0..count as i64).map(|i| start + i * step).collect())
}

fn generated(name: &str, step: i64, values: Vec<f64>, scope: &Scope) -> Series {
    let series = Series::computed(name, scope.span().from, scope.span().until, step, values);
    Series { x_files_factor: scope.x_files_factor, ..series }
}

parameters! {
    /// identity.
    struct Identity {
        name: String = "name".required();
    }
}

impl Evaluate for Identity {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let times = times(60, scope)?.into_iter().map(|time| time as f64).collect();
        let line = generated(&self.name, 60, times, scope);
        let path_expression = format!("identity(\"{}\")", self.name).into();
        Ok(vec![Series { integers: true, path_expression, ..line }].into())
    }
}

parameters! {
    /// timeFunction.
    struct Time {
        name: String = "name".required();
        step: i64 = "step".default(MINUTE);
    }
}

impl Evaluate for Time {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let times = times(self.step, scope)?.into_iter().map(|time| time as f64).collect();
        Ok(vec![generated(&self.name, self.step, times, scope)].into())
    }
}

parameters! {
    /// sinFunction.
    struct Sin {
        name: String = "name".required();
        amplitude: Real = "amplitude".default(Literal::Integer(1));
        step: i64 = "step".default(MINUTE);
    }
}

impl Evaluate for Sin {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let sine = |time: i64| (time as f64).sin() * self.amplitude.0;
        let values = times(self.step, scope)?.into_iter().map(sine).collect();
        Ok(vec![generated(&self.name, self.step, values, scope)].into())
    }
}

parameters! {
    /// randomWalkFunction.
    struct RandomWalk {
        name: String = "name".required();
        step: i64 = "step".default(MINUTE);
    }
}

impl Evaluate for RandomWalk {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let times = times(self.step, scope)?;
        // The seed is made from the request, so that evaluation has no effects: the same name at the same moment walks
        // the same way.
        let mut chance = Chance::of(&self.name, scope.now() ^ scope.span().from.rotate_left(32));
        let mut value = 0.0;
        let mut walk = Vec::with_capacity(times.len());
        for _ in times {
            walk.push(value);
            value += chance.next() - 0.5;
        }
        Ok(vec![generated(&self.name, self.step, walk, scope)].into())
    }
}

/// Numbers that look random (xorshift).
struct Chance(
    // Invariant: not zero.
    u64,
);

impl Chance {
    fn of(name: &str, moment: i64) -> Chance {
        // FNV-1a of both.
        let bytes = name.bytes().chain(moment.to_le_bytes());
        let hash =
            bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        Chance(hash | 1)
    }

    /// At least 0, below 1.
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
