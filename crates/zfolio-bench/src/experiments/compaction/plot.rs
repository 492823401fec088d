//! Two charts: success rate and copies by fill level, for order 9.

use super::grid::{FILLS, Row};
use super::measure::VARIANTS;
use super::summary::{Metric, total};
use plotters::prelude::*;

const SIZE: (u32, u32) = (960, 420);

/// The charts as SVG.
///
/// # Errors
/// What the drawing library says.
pub(super) fn svg(rows: &[Row]) -> Result<String, String> {
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
    draw(&root, rows).map_err(|error| error.to_string())?;
    drop(root);
    Ok(text)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw(root: &Area<'_>, rows: &[Row]) -> Result<(), Box<dyn std::error::Error>> {
    root.fill(&WHITE)?;
    let halves = root.split_evenly((1, 2));
    for (area, metric) in halves.iter().zip([Metric::Success, Metric::Copies]) {
        let line = |variant: &str| -> Vec<(f64, f64)> {
            let figure = |fill| metric.of(&total(rows, fill, 9, variant));
            FILLS
                .iter()
                .filter_map(|fill| figure(*fill).map(|y| (*fill as f64, y)))
                .collect()
        };
        let top = VARIANTS
            .iter()
            .flat_map(|variant| line(variant.name))
            .fold(1.0, |top: f64, (_, y)| top.max(y));
        let mut chart = ChartBuilder::on(area)
            .caption(format!("Order 9: {}", metric.title()), ("sans-serif", 13))
            .margin(10)
            .x_label_area_size(35)
            .y_label_area_size(50)
            .build_cartesian_2d(20.0..95.0, 0.0..top * 1.05)?;
        chart.configure_mesh().x_desc("% of frames in use").draw()?;
        for (nth, variant) in VARIANTS.iter().enumerate() {
            let color = Palette99::pick(nth).to_rgba();
            let points = line(variant.name);
            chart
                .draw_series(LineSeries::new(points.clone(), color.stroke_width(2)))?
                .label(variant.name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2))
                });
            let dots = points
                .into_iter()
                .map(|at| Circle::new(at, 3, color.filled()));
            chart.draw_series(dots)?;
        }
        if metric == Metric::Success {
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::LowerLeft)
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK)
                .draw()?;
        }
    }
    root.present()?;
    Ok(())
}
