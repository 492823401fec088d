//! The picture as PNG: the SVG, drawn. Its letters are those of a typeface that is inside the
//! command, since a container seldom has one.

use epaint_default_fonts::HACK_REGULAR;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};

/// The typeface's own name.
const FAMILY: &str = "Hack";
/// Pixels for each unit of the SVG.
const SCALE: f32 = 2.0;

/// Draws an SVG of ours.
///
/// # Errors
/// What cannot be drawn, in a line.
pub(crate) fn png(svg: &str) -> Result<Vec<u8>, String> {
    let mut options = Options {
        font_family: FAMILY.into(),
        ..Options::default()
    };
    let fonts = options.fontdb_mut();
    fonts.load_font_data(HACK_REGULAR.to_vec());
    fonts.set_sans_serif_family(FAMILY);
    let tree = Tree::from_str(svg, &options).map_err(|error| error.to_string())?;
    let size = tree.size().to_int_size().scale_by(SCALE);
    let size = size.ok_or("it has no size")?;
    let mut pixels = Pixmap::new(size.width(), size.height()).ok_or("it is too large")?;
    resvg::render(
        &tree,
        Transform::from_scale(SCALE, SCALE),
        &mut pixels.as_mut(),
    );
    pixels.encode_png().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SVG: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"40\" height=\"20\" \
        font-family=\"sans-serif\" font-size=\"12\"><rect width=\"100%\" height=\"100%\" fill=\"white\"/>\
        <text x=\"4\" y=\"15\">TEXT</text></svg>";

    #[test]
    fn letters_are_drawn_without_a_typeface_of_the_machine() {
        let pixels = |svg: &str| Pixmap::decode_png(&png(svg).unwrap()).unwrap();
        let written = pixels(SVG);
        assert_eq!((written.width(), written.height()), (80, 40));
        let dark = |of: &Pixmap| of.pixels().iter().filter(|at| at.red() < 100).count();
        assert!(dark(&written) > 100, "{}", dark(&written));
        assert_eq!(dark(&pixels(&SVG.replace("TEXT", ""))), 0);
        assert!(png("<svg").is_err());
    }
}
