//! The screen of `zfolio top`.

use super::state::State;
use super::table::{by_kind, line};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Sparkline, Wrap};
use std::collections::VecDeque;
use zfolio_host::size::human;

const HELP: &str = "\
up, down, j, k   select a row: the curves above are of it
home, end        the first, the last
s                sort: program, resident, pool, saved, faults, pid
?                this help
q                quit

PROGRAM   what it would need without zfolio
RESIDENT  what it has; SAVED is the difference
POOL      compressed pages; STANDBY moved out, not compressed
TABLES    the manager's own
FAULT/s   page faults served; P50, P99: how long each took
STALL     time waited at high (of several threads: more than 100 %)";

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame<'_>, state: &State) {
    let area = frame.area();
    let tall = if area.height >= 40 { 5 } else { 2 };
    let curves = 3 * tall;
    let [head, kinds, over_time, table, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Length(curves),
        Constraint::Min(2),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_head(frame, head, state);
    draw_kinds(frame, kinds, state);
    draw_curves(frame, over_time, tall, state);
    draw_table(frame, table, state);
    let keys = format!(
        " q quit  ? help  s sort ({})  up/down select",
        state.sort.name()
    );
    frame.render_widget(Paragraph::new(keys).style(reversed()), foot);
    if state.help {
        draw_help(frame, area);
    }
}

fn reversed() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let (runs, processes) = state.counts();
    let plural = |count: usize, one: &str, many: &str| {
        format!("{count} {}", if count == 1 { one } else { many })
    };
    let mut text = format!(
        " zfolio top: {}, {}",
        plural(runs, "run", "runs"),
        plural(processes, "process", "processes")
    );
    if state.ended > 0 {
        text.push_str(&format!("; {} ended", plural(state.ended, "run", "runs")));
    }
    frame.render_widget(Paragraph::new(text).style(reversed()), area);
}

fn draw_kinds(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let Some((row, _)) = state.shown() else {
        let text = "nothing is running; it is shown here once zfolio run is started";
        frame.render_widget(Paragraph::new(text), area);
        return;
    };
    let high = row
        .high
        .map_or(String::new(), |high| format!(" of high {}", human(high)));
    let name = format!("{} {}", row.pid, row.name);
    let told = format!(
        ": {} resident{high}, {} saved; ",
        human(row.memory.resident_bytes),
        human(row.memory.saved()),
    );
    let codec = &row.codec;
    let width = usize::from(area.width);
    // In 80 columns the whole words do not fit.
    let ways = format!("by {}, codec {codec}", row.faults_told_by);
    let ways = if (name.len() + told.len() + ways.len()) <= width {
        ways
    } else {
        format!("{}, {codec}", row.faults_told_by)
    };
    let kinds = by_kind(row, width);
    let lines = vec![
        Line::from(vec![
            Span::styled(name, bold()),
            Span::raw(format!("{told}{ways}")),
        ]),
        Line::from(match &row.store {
            // (Where it fits: the kinds are what people look for first.)
            Some(store) => format!("{kinds}; {store}"),
            None => kinds,
        }),
    ];
    frame.render_widget(Paragraph::new(lines), area);
}

/// How the value of a curve is told.
type Told = fn(u64) -> String;

fn draw_curves(frame: &mut Frame<'_>, area: Rect, tall: u16, state: &State) {
    let Some((_, history)) = state.shown() else {
        return;
    };
    let bytes: Told = human;
    let a_second: Told = |value| format!("{}/s", human(value));
    let faults: Told = |value| format!("{value}/s");
    let share: Told = |value| format!("{}.{} %", value / 10, value % 10);
    let curves: [(&str, &VecDeque<u64>, Told, Color); 6] = [
        ("program", &history.program, bytes, Color::Blue),
        ("faults", &history.faults, faults, Color::Yellow),
        ("resident", &history.resident, bytes, Color::Blue),
        ("stall", &history.stall, share, Color::Red),
        ("moved out", &history.moved_out, a_second, Color::Green),
        ("moved in", &history.moved_in, a_second, Color::Green),
    ];
    let lines: [Rect; 3] = Layout::vertical([Constraint::Length(tall); 3]).areas(area);
    for (at, (name, values, told, colour)) in curves.into_iter().enumerate() {
        let halves: [Rect; 2] = Layout::horizontal([Constraint::Fill(1); 2])
            .spacing(2)
            .areas(lines[at / 2]);
        let [title, curve] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(halves[at % 2]);
        let (now, most) = (values.back(), values.iter().max());
        let text = format!(
            "{name} {} (at most {})",
            told(now.copied().unwrap_or(0)),
            told(most.copied().unwrap_or(0))
        );
        frame.render_widget(Paragraph::new(text), title);
        let first = values.len().saturating_sub(usize::from(curve.width));
        let shown: Vec<u64> = values.iter().skip(first).copied().collect();
        let line = Sparkline::default()
            .data(shown)
            .style(Style::new().fg(colour));
        frame.render_widget(line, curve);
    }
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let width = area.width;
    let mut lines = vec![Line::styled(
        line(width, |column| column.title.to_owned()),
        bold(),
    )];
    let height = usize::from(area.height.saturating_sub(1)).max(1);
    let selected = state.selected();
    // The selected one is always on the screen.
    let first = (selected + 1).saturating_sub(height);
    let rows = state.rows.iter().enumerate().skip(first).take(height);
    for (at, row) in rows {
        let text = line(width, |column| (column.of)(row));
        let style = match (at == selected, row.key.turn) {
            (true, _) => reversed(),
            (false, None) => bold(),
            (false, Some(_)) => Style::new(),
        };
        lines.push(Line::styled(text, style));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let tall = u16::try_from(HELP.lines().count()).unwrap_or(u16::MAX) + 2;
    let [column] = Layout::horizontal([Constraint::Max(74)])
        .flex(ratatui::layout::Flex::Center)
        .areas(area);
    let [place] = Layout::vertical([Constraint::Max(tall)])
        .flex(ratatui::layout::Flex::Center)
        .areas(column);
    frame.render_widget(Clear, place);
    let block = Block::bordered()
        .title(" help ")
        .title_alignment(Alignment::Center);
    let text = Paragraph::new(HELP).wrap(Wrap { trim: false }).block(block);
    frame.render_widget(text, place);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn screen(state: &State, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let lines = buffer.content.chunks(usize::from(width));
        let lines = lines.map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>());
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn every_size_is_drawn() {
        let own = crate::example::example();
        let mut state = State::new(Some(own.path())).unwrap();
        for help in [false, true] {
            state.help = help;
            for width in [1, 2, 10, 40, 80, 161, 400] {
                for height in [1, 2, 5, 11, 24, 50] {
                    screen(&state, width, height);
                }
            }
        }
        state.help = false;
        let text = screen(&state, 80, 24);
        for part in [
            "zfolio top: 1 run",
            "PID",
            "SAVED",
            "q quit",
            "moved out",
            "stall",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(screen(&state, 160, 50).contains("FAULTS BY"));
        state.help = true;
        assert!(screen(&state, 80, 24).contains("this help"));
        state.help = false;
        drop(own);
        state.look();
        assert!(screen(&state, 80, 24).contains("nothing is running"));
    }
}
