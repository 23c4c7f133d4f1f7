//! The picture: laid out once, written as SVG or PNG.

use crate::{Error, raster, scene::Scene, svg};

/// A picture, ready to be written.
#[derive(Debug, Clone)]
pub struct Picture {
    pub(crate) scene: Scene,
    pub(crate) font: Option<String>,
}

impl Picture {
    /// The picture as SVG text, at most about `limit` bytes of it. `stop` is called now and then, and ends the work.
    pub fn svg(&self, limit: usize, stop: &dyn Fn() -> bool) -> Result<String, Error> {
        svg::write(&self.scene, self.font.as_deref(), limit, stop)
    }

    /// The picture as the bytes of a PNG file. `stop` is called now and then, and ends the work.
    pub fn png(&self, stop: &dyn Fn() -> bool) -> Result<Vec<u8>, Error> {
        raster::write(&self.scene, stop)
    }
}
