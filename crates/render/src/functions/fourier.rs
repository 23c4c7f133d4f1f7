//! Series as sums of waves.

use std::f64::consts::PI;

use crate::{
    Error, Literal, Series,
    argument::{SeriesList, Value, parameters},
    function::{Evaluate, Function},
    number::general,
    scope::Scope,
};

const GROUP: &str = "Transform";

pub(super) const FUNCTIONS: &[Function] = &[
    Function::of::<Fft>(
        "fft",
        GROUP,
        "The discrete Fourier transform of each series, nulls counting as zero: its amplitudes (abs), its phases (phase), or \
         both.",
    )
    .extension(),
    Function::of::<Ifft>(
        "ifft",
        GROUP,
        "The inverse of fft: series of amplitudes, and of as many series of phases, or of none.",
    )
    .extension(),
    LOW_PASS,
    LOW_PASS.also("lpf"),
];

const LOW_PASS: Function = Function::of::<LowPass>(
    "lowPass",
    GROUP,
    "Of a transform by fft so many percent: those of the lowest frequencies, at both of its ends. All others are null.",
)
.extension();

const MODES: &[Literal] =
    &[Literal::Text(""), Literal::Text("abs"), Literal::Text("all"), Literal::Text("both"), Literal::Text("phase")];

parameters! {
    /// fft.
    struct Fft {
        series: SeriesList = "seriesList".required();
        mode: String = "mode".options(MODES).default(Literal::Text("both"));
    }
}

impl Evaluate for Fft {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let (abs, phase) = (self.mode != "phase", self.mode != "abs");
        let mut parts = Vec::with_capacity(2 * self.series.0.len());
        for series in self.series.0 {
            // The transform takes about eight times as much memory as the series.
            scope.spend(series.values.len().saturating_mul(8))?;
            let values = scope.column(&series.values, 2, |value| Complex(zero_if_unknown(*value), 0.0))?;
            let waves = transform(values, false, scope)?;
            if abs {
                let name = format!("fft({},abs)", series.name);
                parts.push(series.clone().with(scope.column(&waves, STEPS_PER_TURN, |wave| wave.abs())?).called(name));
            }
            if phase {
                let name = format!("fft({},phase)", series.name);
                parts
                    .push(series.with(scope.column(&waves, STEPS_PER_TURN, |wave| wave.1.atan2(wave.0))?).called(name));
            }
        }
        Ok(parts.into())
    }
}

parameters! {
    /// ifft.
    struct Ifft {
        series: SeriesList = "seriesList".required();
        phases: Option<SeriesList> = "phaseSeriesList";
    }
}

impl Evaluate for Ifft {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let mut phases = self.phases.map(|list| list.0).unwrap_or_default().into_iter();
        let mut sums = Vec::with_capacity(self.series.0.len());
        for series in self.series.0 {
            scope.spend(series.values.len().saturating_mul(8))?;
            let phase: Option<Series> = phases.next();
            let mut places = 0..;
            let wave = |abs: &f64| {
                let i: usize = places.next().unwrap_or(usize::MAX);
                let angle = phase.as_ref().and_then(|phase| phase.values.get(i)).copied().map_or(0.0, zero_if_unknown);
                let abs = zero_if_unknown(*abs);
                Complex(abs * angle.cos(), abs * angle.sin())
            };
            let waves = scope.column(&series.values, 2 * STEPS_PER_TURN, wave)?;
            let name = match &phase {
                Some(phase) => format!("ifft({},{})", series.name, phase.name),
                None => format!("ifft({})", series.name),
            };
            let values = scope.column(&transform(waves, true, scope)?, STEPS_PER_TURN, |value| value.abs())?;
            sums.push(series.with(values).called(name));
        }
        Ok(sums.into())
    }
}

parameters! {
    /// lowPass.
    struct LowPass {
        series: SeriesList = "seriesList".required();
        percent: f64 = "cutPercent".required();
    }
}

impl Evaluate for LowPass {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let mut cut = Vec::with_capacity(self.series.0.len());
        for series in self.series.0 {
            scope.spend(series.values.len())?;
            let count = series.values.len();
            let kept = ((self.percent / 200.0 * count as f64) as usize).min(count);
            let keep = |(i, value): (usize, &f64)| if i < kept || i >= count - kept { *value } else { f64::NAN };
            let values = series.values.iter().enumerate().map(keep).collect();
            let name = format!("lowPass({},{})", series.name, general(self.percent));
            cut.push(series.with(values).called(name));
        }
        Ok(cut.into())
    }
}

fn zero_if_unknown(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

/// A number with its imaginary part.
#[derive(Debug, Clone, Copy)]
struct Complex(f64, f64);

impl Complex {
    fn times(self, other: Complex) -> Complex {
        Complex(self.0 * other.0 - self.1 * other.1, self.0 * other.1 + self.1 * other.0)
    }

    fn conjugate(self) -> Complex {
        Complex(self.0, -self.1)
    }

    fn abs(self) -> f64 {
        self.0.hypot(self.1)
    }

    /// On the unit circle, so far around it of the whole.
    fn turn(part: f64) -> Complex {
        let (sin, cos) = (2.0 * PI * part).sin_cos();
        Complex(cos, sin)
    }
}

/// Steps of a sine and a cosine.
const STEPS_PER_TURN: usize = 30;

/// Values between two questions for steps.
const BLOCK: usize = 1 << 13;

/// The discrete Fourier transform of any number of values, or its inverse.
///
/// A power of two is halved again and again. Any other number becomes a convolution with a chirp (Bluestein), made
/// of transforms whose length is a power of two.
fn transform(mut values: Vec<Complex>, inverse: bool, scope: &Scope) -> Result<Vec<Complex>, Error> {
    let count = values.len();
    if count < 2 {
        return Ok(values);
    }
    if inverse {
        for values in values.chunks_mut(BLOCK) {
            scope.check_after(3 * values.len())?;
            values.iter_mut().for_each(|value| *value = value.conjugate());
        }
    }
    if count.is_power_of_two() {
        halving(&mut values, scope)?;
    } else {
        values = chirped(&values, scope)?;
    }
    if inverse {
        for values in values.chunks_mut(BLOCK) {
            scope.check_after(3 * values.len())?;
            values.iter_mut().for_each(|value| *value = Complex(value.0 / count as f64, -value.1 / count as f64));
        }
    }
    Ok(values)
}

fn chirped(values: &[Complex], scope: &Scope) -> Result<Vec<Complex>, Error> {
    let count = values.len();
    // The square is taken modulo a whole turn, so that the angle stays exact.
    let chirp = |i: usize| Complex::turn(-((i * i % (2 * count)) as f64) / (2 * count) as f64);
    let size = (2 * count - 1).next_power_of_two();
    let mut left = zeros(size, scope)?;
    let mut right = zeros(size, scope)?;
    for (i, value) in values.iter().enumerate() {
        scope.check_after(2 * STEPS_PER_TURN)?;
        left[i] = value.times(chirp(i));
        right[i] = chirp(i).conjugate();
        right[(size - i) % size] = right[i];
    }
    halving(&mut left, scope)?;
    halving(&mut right, scope)?;
    // The inverse by way of the conjugates.
    let mut factors = right.iter();
    let mut product = scope.column(&left, 4, |a| factors.next().map_or(*a, |b| a.times(*b).conjugate()))?;
    halving(&mut product, scope)?;
    let at = |i: usize| {
        scope.check_after(STEPS_PER_TURN)?;
        let sum = Complex(product[i].0 / size as f64, -product[i].1 / size as f64);
        Ok(sum.times(chirp(i)))
    };
    (0..count).map(at).collect()
}

/// So many zeros; the system takes its time for that much memory.
fn zeros(count: usize, scope: &Scope) -> Result<Vec<Complex>, Error> {
    let mut zeros = Vec::with_capacity(count);
    while zeros.len() < count {
        scope.check_after(10 * BLOCK)?;
        zeros.resize(count.min(zeros.len() + BLOCK), Complex(0.0, 0.0));
    }
    Ok(zeros)
}

/// The transform of a power of two of values, in place: 1. each goes to the place whose bits are its own in reverse;
/// 2. neighbours are joined to pairs, pairs to fours, and so on.
fn halving(values: &mut [Complex], scope: &Scope) -> Result<(), Error> {
    let count = values.len();
    debug_assert!(count.is_power_of_two(), "halves have halves");
    let bits = count.trailing_zeros();
    for i in 0..count {
        if i % BLOCK == 0 {
            scope.check_after(40 * BLOCK)?;
        }
        let mirrored = i.reverse_bits() >> (usize::BITS - bits.max(1));
        if i < mirrored && bits > 0 {
            values.swap(i, mirrored);
        }
    }
    let mut half = 1;
    while half < count {
        let turn = |i: usize| {
            scope.check_after(STEPS_PER_TURN)?;
            Ok(Complex::turn(-(i as f64) / (2 * half) as f64))
        };
        let turns: Vec<Complex> = (0..half).map(turn).collect::<Result<_, Error>>()?;
        for run in values.chunks_exact_mut(2 * half) {
            let (low, high) = run.split_at_mut(half);
            if half <= BLOCK {
                scope.check_after(4 * half)?;
                join(low, high, &turns);
                continue;
            }
            for ((low, high), turns) in low.chunks_mut(BLOCK).zip(high.chunks_mut(BLOCK)).zip(turns.chunks(BLOCK)) {
                scope.check_after(4 * low.len())?;
                join(low, high, turns);
            }
        }
        half *= 2;
    }
    Ok(())
}

/// Joins the halves of a transform.
fn join(low: &mut [Complex], high: &mut [Complex], turns: &[Complex]) {
    for ((low, high), turn) in low.iter_mut().zip(high).zip(turns) {
        let turned = high.times(*turn);
        (*low, *high) = (Complex(low.0 + turned.0, low.1 + turned.1), Complex(low.0 - turned.0, low.1 - turned.1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::in_scope;

    #[test]
    fn a_transform_of_any_length_is_the_sum_that_defines_it() {
        for count in 0..40_usize {
            let values: Vec<Complex> =
                (0..count).map(|i| Complex((i * i % 7) as f64 - 2.5, (i * 3 % 5) as f64)).collect();
            let naive = |k: usize| {
                values.iter().enumerate().fold(Complex(0.0, 0.0), |sum, (i, value)| {
                    let wave = value.times(Complex::turn(-((i * k % count) as f64) / count as f64));
                    Complex(sum.0 + wave.0, sum.1 + wave.1)
                })
            };
            let near = |a: Complex, b: Complex| (a.0 - b.0).abs() < 1e-9 && (a.1 - b.1).abs() < 1e-9;
            let transformed = in_scope(|scope| transform(values.clone(), false, scope)).expect("not cancelled");
            for (k, value) in transformed.iter().enumerate() {
                assert!(near(*value, naive(k)), "{count}: {k} is {value:?}, not {:?}", naive(k));
            }
            for (back, value) in
                in_scope(|scope| transform(transformed, true, scope)).expect("not cancelled").iter().zip(&values)
            {
                assert!(near(*back, *value), "{count}: {back:?} is not {value:?}");
            }
        }
    }
}
