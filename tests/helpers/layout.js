// Texts cut at a side or written over one another, menus and fields too narrow for what they say, titles of axes
// within their plots, and controls in sight whose middle belongs to something else.
() => {
    const ours = document.querySelector('gradio-app') ?? document.body;
    const short = node => `${node.tagName.toLowerCase()}${node.id && '#' + node.id}.${node.className?.baseVal ?? node.className} ` +
        `"${(node.textContent || node.value || '').trim().slice(0, 40)}"`;
    const scrolls = style => /auto|scroll/.test(style.overflowX + style.overflowY);
    const seen = node => node.checkVisibility({ visibilityProperty: true, opacityProperty: true })
        && !node.closest('.sd-sr, .sr-only, .sd-tip, [aria-hidden=true], noscript, script, style');
    const view = { right: document.documentElement.clientWidth, bottom: innerHeight };
    // The outermost box that a text scrolls in: it is out of sight on purpose there, but the box is not.
    const scroller = node => {
        let found = null;
        for (let at = node; at && at !== document.body; at = at.parentElement)
            if (scrolls(getComputedStyle(at))) found = at;
        return found;
    };
    // What is left of a rectangle once every ancestor has cut it.
    const cut = (rect, node) => {
        let { left, top, right, bottom } = rect;
        for (let at = node; at && at !== document.body; at = at.parentElement) {
            const style = getComputedStyle(at);
            if (style.position === 'fixed') break;
            if (style.overflow === 'visible') continue;
            const box = at.getBoundingClientRect();
            // What overflows is cut within the border.
            const border = name => parseFloat(style[`border${name}Width`]);
            [left, top] = [Math.max(left, box.left + border('Left')), Math.max(top, box.top + border('Top'))];
            [right, bottom] = [Math.min(right, box.right - border('Right')), Math.min(bottom, box.bottom - border('Bottom'))];
        }
        return { left, top, right, bottom };
    };
    // The open settings and, on a phone, the buttons of a replay lie over the page on purpose.
    const replay = ours.querySelector('.sd-replay');
    const over = replay && getComputedStyle(replay).position === 'sticky' ? '#more > div:not(.wrap), .sd-replay' : '#more > div:not(.wrap)';
    const isOpened = node => Boolean(node.closest(over));
    const apart = (one, other) => isOpened(one) !== isOpened(other);
    const faults = [];
    // The prompt of the run on the stage and a token that is drawn end in an ellipsis on purpose; their titles have the whole.
    const written = [];
    const walker = document.createTreeWalker(ours, NodeFilter.SHOW_TEXT);
    for (let text; (text = walker.nextNode()); ) {
        const parent = text.parentElement;
        if (!text.data.trim() || !seen(parent) || parent.closest('textarea, select, option, svg, .sd-text, .sd-cards, .sd-source-prompt, .sd-pass-box b')) continue;
        const style = getComputedStyle(parent);
        const range = document.createRange();
        range.selectNodeContents(text);
        for (const rect of range.getClientRects()) {
            if (rect.width < 1 || rect.height < 1) continue;
            const left = cut(rect, parent);
            const scrolled = scroller(parent);
            if (!scrolled && (left.right < rect.right - 1.5 || left.left > rect.left + 1.5)) faults.push(`cut: ${short(parent)}`);
            if (rect.right > view.right + 1 && !scrolled) faults.push(`beside the page: ${short(parent)}`);
            const room = scrolled?.getBoundingClientRect();
            if (room && (room.left < -1 || room.right > view.right + 1)) faults.push(`beside the page: ${short(scrolled)}`);
            if (left.right - left.left < 1 || left.bottom - left.top < 1) continue;
            // The letters, not the leading above and below them.
            const lead = Math.max(0, (rect.height - parseFloat(style.fontSize)) / 2);
            written.push({ text, parent, left: left.left, right: left.right, top: left.top + lead, bottom: left.bottom - lead });
        }
    }
    for (const [index, one] of written.entries())
        for (const other of written.slice(index + 1)) {
            const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
            const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
            if (wide > 1.5 && high > 2 && !apart(one.parent, other.parent) && atFront(one) && atFront(other)) faults.push(`over one another: ${short(one.parent)} and ${short(other.parent)}`);
        }
    // What another layer covers on purpose (an open menu, a bar that sticks) is not written over.
    function atFront({ parent, left, right, top, bottom }) {
        const found = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
        return !found || parent.contains(found) || found.contains(parent);
    }
    for (const node of ours.querySelectorAll('button, summary, select, input, label.sd-toggle, .sd-pace span')) {
        if (!seen(node) || node.matches('[type=file]')) continue;
        const box = node.getBoundingClientRect();
        if (box.width < 1 || box.height < 1) continue;
        if (node.matches('select')) {
            const canvas = new OffscreenCanvas(1, 1).getContext('2d');
            const style = getComputedStyle(node);
            canvas.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
            const needed = canvas.measureText(node.selectedOptions[0]?.textContent ?? '').width;
            const room = box.width - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
            if (needed > room + 1) faults.push(`cut: ${short(node)} needs ${needed.toFixed()} of ${room.toFixed()}`);
        }
        if (node.matches('input:not([type=checkbox], [type=radio], [type=range])') && node.scrollWidth > node.clientWidth + 1)
            faults.push(`cut: ${short(node)} = "${node.value}"`);
        const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
        if (x < 0 || y < 0 || x >= view.right - 1 || y >= view.bottom - 1) continue; // no element is found on the edge
        const inside = cut(box, node);
        if (inside.right < x || inside.bottom < y || inside.left > x || inside.top > y) continue;
        const hit = document.elementFromPoint(x, y);
        const own = hit && (node.contains(hit) || hit.closest('label')?.contains(node) || hit.contains(node) && hit.matches('label, summary') || [...(node.labels ?? [])].some(label => label.contains(hit)));
        if (!own && !(hit && apart(hit, node))) faults.push(`covered: ${short(node)} by ${hit ? short(hit) : 'nothing'}`);
    }
    for (const title of ours.querySelectorAll('.ytitle, .y2title')) {
        const plot = title.closest('.js-plotly-plot').querySelector('.nsewdrag');
        if (!seen(title) || !plot) continue;
        const [{ left, right }, axes] = [title.getBoundingClientRect(), plot.getBoundingClientRect()];
        if (right > axes.left && left < axes.right) faults.push(`title of an axis within the plot: ${short(title)}`);
    }
    return [...new Set(faults)];
}
